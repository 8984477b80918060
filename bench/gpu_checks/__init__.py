"""What bundle/run-gpu-checks runs on a host with GPUs: tests, sanitizers, servers, benchmarks; one report.

Python's standard library only, so that it runs wherever python3 is.
"""
