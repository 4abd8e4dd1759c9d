"""The version of the library, in its own module so that every room can import it."""

__version__ = "0.3.0"
