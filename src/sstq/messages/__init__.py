"""Messages: the batch, its bits, and files of messages and of vectors."""
