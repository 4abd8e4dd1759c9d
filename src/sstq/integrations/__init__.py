"""Integrations with Flower, PyTorch and Ray, each with an optional dependency that is imported only there."""
