"""The search of events: an inverted index in PostgreSQL, and a copy in each process that answers from memory.

words/                      folded words, stems, spellings, sounds; the vocabulary; stop words and default synonyms
documents, index_writer     from an event to its postings; changes, the rebuild, and its reconciliation
bits, postings, memory      sets and numbers of documents as big integers; what a process keeps of the index
index_reader                the thread of a process of the site that reads the index before a search needs it
pipeline, filters, engine   from a query to its matches; filters, order, facets, results
"""
