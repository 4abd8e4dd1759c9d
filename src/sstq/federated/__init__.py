"""Rounds of federated training, whoever runs them: the frame of a round, cohorts, and a clip that follows the norms."""
