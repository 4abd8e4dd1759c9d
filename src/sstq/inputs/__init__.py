"""What a person holds: vectors, groups, categories or records, in arrays, tables and files."""
