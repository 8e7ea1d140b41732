"""Bad input by the thousand: python -m reliability.fuzz [--cases 10000] [--seed 0] [--only TARGET:NUMBER]."""
