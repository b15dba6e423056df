"""A model of one ledger, of bookies that lose data, and of recoveries; all of its states are searched.

The model is that of BP-46 (running without the journal), as published in TLA+ and as corrected. It has one ledger, a
metadata store, bookies that may restart empty, and clients: any idle one may become the writer, any other may recover.
An ensemble is a write quorum; ordinary reads are left out.

===================  ==========================================================================================
``options``          the sizes, the faults, and the rules that are in force
``state``            the parts of a state
``network``          the messages that were ever sent, and their fates
``steps``            the form in which actions return steps; deliveries for other bookies
``bookies``          bookies process requests
``crash``            bookies lose data; limbo is cleared
``writer``           create, send, close
``recovery``         fence, read, write back, close
``ensembles``        acknowledgements and ensemble changes, for both
``type_invariants``  values that variables may have
``properties``       the properties: proof/checks applied to states
``space``            states as two words, and what each step depends on
``symmetry``         states that differ in names only
``search``           the search, with ``trace`` for counterexamples; ``exploration`` and ``fingerprints`` are its
                     compiled parts, called once per state
``termination``      tells if a recovery can ever end
===================  ==========================================================================================

Readings of the published model where its text is ambiguous:

- A read completes when responses and timeouts together are exactly the write quorum. A bookie can count twice (its
  response here, another client's lost read); then the count is over, and the read goes on.
- Responses to reads and fences are accepted in any role and phase. Acks are accepted only from the ensemble.
- 'No read was ever sent by any client' and 'this client has written entry i back' follow from the messages; a bit in
  the state says the same.
- With one holder sufficient, a read that also has enough negatives has found the entry.
- Reads that end early accept a response that decides nothing, whatever is still missing; responses that come too late
  are dropped.
- The ensemble that is picked is the one with the lowest bookies.
- A recovery replaces bookies without checking the resulting fragments. With the LAC floor they are in order;
  without it ``fragments`` finds the second defect of 4.13.
"""
