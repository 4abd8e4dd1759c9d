"""PrivUnit and PrivUnitG: a point of a cap around the vector, or of the rest."""
