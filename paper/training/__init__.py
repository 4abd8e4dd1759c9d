"""Simulated federated training in one process: many clients, private messages, one model.

problem ──▶ gradients of all clients ──▶ encode ──▶ mean ──▶ server step ──▶ evaluation, again
"""
