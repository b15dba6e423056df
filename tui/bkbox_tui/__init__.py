"""The operator's screen of a bookie, in a terminal: ``bkbox tui``.

It answers, in this order: is it safe, what is it doing, how long, what do I do next. Everything on it is made from the
status document and the jobs of the bookie, as the commands show them too; it reaches a running bookie only through its
admin API. From the bottom up:

- ``snapshot``, ``answers``, ``history``, ``events``: pure; the state at one moment and conclusions from it;
- ``formatting``, ``charts``, ``cards``: pure; conclusions as text;
- ``sources``, ``recording``: sources of snapshots: a bookie, its files while it is down, a recording;
- ``keys``: one table of all keys, which feeds bindings, footer, help and the command palette;
- ``widgets``, ``panels``, ``dialogs``: drawing; ``app``: decides what is drawn when.
"""
