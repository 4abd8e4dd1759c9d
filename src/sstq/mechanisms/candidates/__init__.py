"""Mechanisms that send the number of one of a client's public candidates."""
