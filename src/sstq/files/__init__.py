"""Files: written whole or not at all, locked, cached, and read with suspicion."""
