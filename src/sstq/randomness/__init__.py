"""Random words: secret ones from the operating system, public streams from a counter."""
