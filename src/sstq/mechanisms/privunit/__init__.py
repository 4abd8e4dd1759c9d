"""PrivUnit and PrivUnitG: send a point of a cap around the vector, or of the rest of the sphere."""
