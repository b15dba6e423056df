package bkbox.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;

/** The clients and ledger handles that are open, by the names that requests give them. */
final class Sessions {
    /** A client, and what administrators do with it. */
    record Session(BookKeeper client, BookKeeperAdmin admin) {}

    private final Map<String, Session> clients = new ConcurrentHashMap<>();
    private final Map<String, LedgerHandle> handles = new ConcurrentHashMap<>();

    void putClient(String name, Session session) {
        clients.put(name, session);
    }

    Session client(Request request) {
        Session session = clients.get(request.text("client"));
        if (session == null) {
            throw new IllegalArgumentException("no client " + request.text("client"));
        }
        return session;
    }

    Session removeClient(Request request) {
        Session session = client(request);
        clients.remove(request.text("client"));
        return session;
    }

    void putHandle(Request request, LedgerHandle handle) {
        handles.put(request.text("handle"), handle);
    }

    LedgerHandle handle(Request request) {
        LedgerHandle handle = handles.get(request.text("handle"));
        if (handle == null) {
            throw new IllegalArgumentException("no handle " + request.text("handle"));
        }
        return handle;
    }
}
