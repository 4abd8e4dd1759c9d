"""Messages: batches, bit packing, and files of messages and of vectors."""
