"""The rows of the table, one module each: `run(bench)` measures the row and returns its findings."""
