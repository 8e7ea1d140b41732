"""Where images, networks and methods come from, and the CSV files that rows are kept in."""
