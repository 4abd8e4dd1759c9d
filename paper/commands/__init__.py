"""The commands of `python -m paper`, one module per kind."""
