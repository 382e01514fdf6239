"""What a user says of a run, checked as soon as it is said."""
