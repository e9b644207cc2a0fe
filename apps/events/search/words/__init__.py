"""Words: folded tokens, stems, spellings and sounds; the vocabulary of the index."""
