package bkbox.upstream;

/** A test wants of a bookie what only one in the memory of its own JVM has. */
public final class OutOfScopeException extends UnsupportedOperationException {
    private static final long serialVersionUID = 1L;

    public OutOfScopeException(String what) {
        super("out of scope: " + what);
    }
}
