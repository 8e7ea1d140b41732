"""`PYTHONPATH=tests/support:. python -m certificate_fuzzer`: the full search, stored among the benchmarks' results."""

from certificate_fuzzer.search import main

main()
