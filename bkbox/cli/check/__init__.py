"""Commands that check or show bkbox itself: doctor, self-test, benchmark, demo."""
