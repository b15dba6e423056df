"""Hash tables of 64-bit words for searches of millions of states: eight bytes a state.

``Fingerprints`` is a set of states of two words by a print of 64 bits: two states with one print are taken for one. For
n states that happens anywhere with a probability of about n² / 2**65: one in a hundred thousand for 20 million.
``Memo`` is an exact map from two words to a number above 0.

Both are open-addressing tables with linear probing, at most two thirds full; 0 is a vacant place.
"""

from __future__ import annotations

from mmap import mmap

_WORD = 0xFFFF_FFFF_FFFF_FFFF
_FIRST_PLACES = 1 << 12
_STEP = 0x9E37_79B9_7F4A_7C15
_MIX_1 = 0xBF58_476D_1CE4_E5B9
_MIX_2 = 0x94D0_49BB_1331_11EB


def word_array(count: int) -> memoryview:
    """An array of ``count`` words, all 0."""
    return memoryview(mmap(-1, 8 * count)).cast("Q")


def print_of(upper: int, lower: int) -> int:
    """64 bits of two words, never 0: splitmix64's finalizer over each in turn."""
    mixed = _mixed((_mixed(upper) + lower) & _WORD)
    return mixed if mixed else 1


def _mixed(word: int) -> int:
    word = (word + _STEP) & _WORD
    word = ((word ^ (word >> 30)) * _MIX_1) & _WORD
    word = ((word ^ (word >> 27)) * _MIX_2) & _WORD
    return word ^ (word >> 31)


class Fingerprints:
    """A set of prints. ``count``: their number."""

    __slots__ = ("_places", "_table", "count")

    def __init__(self) -> None:
        self.count = 0
        self._places = _FIRST_PLACES
        self._table = word_array(self._places)

    def add(self, upper: int, lower: int) -> bool:
        """Adds a state; True if it was new."""
        fingerprint = print_of(upper, lower)
        place = fingerprint & (self._places - 1)
        found = self._table[place]
        while found != 0:
            if found == fingerprint:
                return False
            place = (place + 1) & (self._places - 1)
            found = self._table[place]
        self._table[place] = fingerprint
        self.count += 1
        if self.count * 3 > self._places * 2:
            self._grow()
        return True

    def _grow(self) -> None:
        old = self._table
        count = self._places
        self._places = count * 2
        self._table = word_array(self._places)
        for index in range(count):
            stored = old[index]
            if stored != 0:
                place = stored & (self._places - 1)
                while self._table[place] != 0:
                    place = (place + 1) & (self._places - 1)
                self._table[place] = stored


class Memo:
    """A map from two words to a number above 0."""

    __slots__ = ("_count", "_lower", "_number", "_places", "_upper")

    def __init__(self) -> None:
        self._count = 0
        self._resize(_FIRST_PLACES)

    def get(self, upper: int, lower: int) -> int:
        """The number, 0 if there is none."""
        place = print_of(upper, lower) & (self._places - 1)
        while self._number[place] != 0:
            if self._lower[place] == lower and self._upper[place] == upper:
                return self._number[place]
            place = (place + 1) & (self._places - 1)
        return 0

    def put(self, upper: int, lower: int, number: int) -> None:
        """Enters a pair that is not in the map yet."""
        place = print_of(upper, lower) & (self._places - 1)
        while self._number[place] != 0:
            place = (place + 1) & (self._places - 1)
        self._upper[place] = upper
        self._lower[place] = lower
        self._number[place] = number
        self._count += 1
        if self._count * 3 > self._places * 2:
            self._grow()

    def _resize(self, places: int) -> None:
        self._places = places
        self._upper = word_array(places)
        self._lower = word_array(places)
        self._number = word_array(places)

    def _grow(self) -> None:
        upper = self._upper
        lower = self._lower
        number = self._number
        count = self._places
        self._resize(count * 2)
        self._count = 0
        for place in range(count):
            if number[place] != 0:
                self.put(upper[place], lower[place], number[place])
