"""Compare methods under attack on equal terms: a plan, a runner, resumable rows and their summary."""
