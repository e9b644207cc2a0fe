"""The rows of the table, one module each: `run(bench)` measures and says what it found."""
