"""The programs that are measured: a process each, which bench/workers.py starts and commands."""
