"""Reading and writing files safely: atomic writes, locks, the cache folder, and strict JSON and NumPy readers."""
