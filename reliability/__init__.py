"""What the package promises beside its results: bad input, faults, kills, threads, leaks, and equal maps everywhere."""
