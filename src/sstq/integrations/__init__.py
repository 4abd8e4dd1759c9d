"""Integrations with Flower and PyTorch, each with an optional dependency that is imported only there."""
