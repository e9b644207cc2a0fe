"""What changes, told to everybody who listens: counts, the line, seats to those who may see them, and to each the state
of what is theirs. The relay says what moved; each process reads what its own listeners need, once for all of them."""
