"""A fuzzer of certificates: cases of known constants, attackers that see everything, a tally of what broke."""
