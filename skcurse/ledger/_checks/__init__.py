"""What recomputes the verdicts: functions without arguments that return a `Finding`."""
