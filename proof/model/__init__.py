"""A model of one ledger, bookies that forget, and recoveries, all of whose states are looked at.

The model is that of BP-46 (running without the journal), as published in TLA+ and as corrected. It has one ledger, a
metadata store, bookies that may restart empty, and clients: any idle one may become the writer, any other may recover.
An ensemble is a write quorum; ordinary reads are left out.

===================  ===================================================================================================
``options``          the sizes, the faults, and which rules are in force
``state``            what a state is made of
``network``          which messages were ever sent, and what became of them
``steps``            how actions say what happens; deliveries for other bookies
``bookies``          bookies take requests
``crash``            bookies forget; limbo is cleared
``writer``           create, send, close
``recovery``         fence, read, write back, close
``ensembles``        acknowledgements and ensemble changes, for both
``type_invariants``  which values variables may have
``properties``       what must hold: proof/checks asked of states
``space``            states as two words, and what each step depends on
``symmetry``         states that differ in names only
``search``           the search, with ``trace`` for counterexamples; ``exploration`` and ``fingerprints`` are its
                     compiled parts, once per state
``termination``      whether a recovery can ever end
===================  ===================================================================================================

How the published model is read, where its words leave room:

- A read completes when answers and timeouts together are exactly the write quorum. A bookie can count twice (its answer
  here, somebody else's lost read); then the count is over, and the read goes on.
- Answers to reads and fences are taken in any role and phase. Of the acks only those of the ensemble are.
- 'No read was ever sent by anyone' and 'this client has written entry i back' are told by the messages; a bit in the
  state says the same.
- With one holder sufficient, a read that also has enough negatives has found the entry.
- Reads that end early take an answer that decides nothing, whatever is still missing; answers that come too late are
  dropped.
- Which ensemble is picked: the one with the lowest bookies.
- A recovery replaces bookies without a look at the fragments that come out. With the LAC floor they are in order;
  without it ``fragments`` finds the second defect of 4.13.
"""
