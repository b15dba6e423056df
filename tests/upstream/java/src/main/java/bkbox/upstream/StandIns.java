package bkbox.upstream;

import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.BookieStateManager;
import org.apache.bookkeeper.bookie.InterleavedLedgerStorage;
import org.apache.bookkeeper.proto.BookieServer;
import org.mockito.stubbing.Answer;

/**
 * Objects of the classes that tests know a bookie by, in front of a bkbox bookie. They answer what can be asked of a
 * process from outside; every other method throws OutOfScopeException.
 */
public final class StandIns {
    private StandIns() {}

    public static BookieServer server(BookieProcess process) {
        BookieImpl bookie = bookie(process);
        return standIn(BookieServer.class, process, call -> switch (call.getMethod().getName()) {
            case "getBookieId" -> process.id();
            case "getLocalAddress" -> process.address();
            case "getBookie" -> bookie;
            case "isRunning", "isBookieRunning" -> process.isRunning();
            case "start" -> done(process::start);
            case "shutdown" -> done(process::stop);
            case "suspendProcessing" -> done(process::suspend);
            case "resumeProcessing" -> done(process::resume);
            default -> throw outOfScope(call.getMethod().toString());
        });
    }

    private static BookieImpl bookie(BookieProcess process) {
        var storage = new Storage(process);
        BookieStateManager state = state(process);
        return standIn(BookieImpl.class, process, call -> switch (call.getMethod().getName()) {
            case "isRunning" -> process.isRunning();
            case "isReadOnly" -> process.isReadOnly();
            case "getLedgerStorage" -> storage;
            case "getStateManager" -> state;
            default -> throw outOfScope(call.getMethod().toString());
        });
    }

    private static BookieStateManager state(BookieProcess process) {
        return standIn(BookieStateManager.class, process, call -> switch (call.getMethod().getName()) {
            case "isRunning" -> process.isRunning();
            case "isReadOnly" -> process.isReadOnly();
            case "transitionToReadOnlyMode" -> later(() -> process.setReadOnly(true));
            case "doTransitionToReadOnlyMode" -> done(() -> process.setReadOnly(true));
            case "transitionToWritableMode" -> later(() -> process.setReadOnly(false));
            default -> throw outOfScope(call.getMethod().toString());
        });
    }

    /** Tests take its collector out of this field, by the field's name, and run it. */
    private static final class Storage extends InterleavedLedgerStorage {
        @SuppressWarnings("unused")
        private final Runnable gcThread;

        Storage(BookieProcess process) {
            gcThread = () -> done(process::collect);
        }
    }

    private interface Action {
        void run() throws Exception;
    }

    private static Void done(Action action) {
        try {
            action.run();
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
        return null;
    }

    private static CompletableFuture<Void> later(Action action) {
        return CompletableFuture.runAsync(() -> done(action));
    }

    private static OutOfScopeException outOfScope(String method) {
        return new OutOfScopeException(method + " of a bookie in the memory of the test");
    }

    private static <T> T standIn(Class<T> type, BookieProcess process, Answer<Object> answer) {
        Answer<Object> named = call ->
                call.getMethod().getName().equals("toString") ? process.toString() : answer.answer(call);
        return mock(type, withSettings().stubOnly().defaultAnswer(named));
    }
}
