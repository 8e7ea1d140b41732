"""Where images, networks and methods come from, and the CSV tables of the results."""
