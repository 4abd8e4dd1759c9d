"""GroupUnit: a private group and a vector in one message."""
