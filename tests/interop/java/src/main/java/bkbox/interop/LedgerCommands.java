package bkbox.interop;

import io.netty.buffer.Unpooled;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.WriteAdvHandle;

/** What is asked of an open ledger. Entries are answered as {"entry": id, "length": n, "payload": base64}. */
final class LedgerCommands {
    private final Sessions sessions;

    LedgerCommands(Sessions sessions) {
        this.sessions = sessions;
    }

    void addTo(Map<String, Driver.Command> commands) {
        commands.put("append", this::append);
        commands.put("appendAsync", this::appendAsync);
        commands.put("write", this::write);
        commands.put("force", this::force);
        commands.put("state", request -> stateOf(sessions.handle(request)));
        commands.put("close", this::close);
        commands.put("read", request -> entries(request.await(sessions.handle(request)
                .readAsync(request.number("first"), request.number("last")))));
        commands.put("readUnconfirmed", request -> entries(request.await(sessions.handle(request)
                .readUnconfirmedAsync(request.number("first"), request.number("last")))));
        commands.put("batchRead", request -> entries(request.await(sessions.handle(request)
                .batchReadAsync(request.number("first"), (int) request.number("count"), request.number("size")))));
        commands.put("longPoll", this::longPoll);
        commands.put("readLac", request ->
                request.await(sessions.handle(request).readLastAddConfirmedAsync()));
        commands.put("tryReadLac", request ->
                request.await(sessions.handle(request).tryReadLastAddConfirmedAsync()));
        commands.put("readExplicitLac", this::readExplicitLac);
    }

    static Map<String, Object> stateOf(LedgerHandle handle) {
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("ledger", handle.getId());
        state.put("lac", handle.getLastAddConfirmed());
        state.put("pushed", handle.getLastAddPushed());
        state.put("length", handle.getLength());
        state.put("closed", handle.isClosed());
        return state;
    }

    /** Arguments: handle, payloads. One after the other; their ids. */
    private Object append(Request request) throws Exception {
        LedgerHandle handle = sessions.handle(request);
        List<Long> ids = new ArrayList<>();
        for (byte[] payload : request.listOfBytes("payloads")) {
            ids.add(request.await(handle.appendAsync(Unpooled.wrappedBuffer(payload))));
        }
        return ids;
    }

    /**
     * Arguments: handle, count, size, from, window. Appends count entries, at most window of them outstanding;
     * entry number n (counted from "from") is the text of n, repeated with blanks to size bytes. Results in the
     * order of the calls, each [code, entry id], and the LAC afterwards.
     */
    private Object appendAsync(Request request) throws Exception {
        LedgerHandle handle = sessions.handle(request);
        long from = request.number("from", 0);
        Semaphore room = new Semaphore((int) request.number("window", 1000));
        List<CompletableFuture<List<Long>>> results = new ArrayList<>();
        for (long number = from; number < from + request.number("count"); number++) {
            if (!room.tryAcquire(30, TimeUnit.SECONDS)) {
                throw new TimeoutException("no add was answered for 30 s");
            }
            CompletableFuture<List<Long>> result = new CompletableFuture<>();
            results.add(result);
            handle.asyncAddEntry(pattern(number, (int) request.number("size")), (code, ledger, entry, context) -> {
                room.release();
                result.complete(List.of((long) code, entry));
            }, null);
        }
        List<List<Long>> answers = new ArrayList<>();
        for (CompletableFuture<List<Long>> result : results) {
            answers.add(request.await(result));
        }
        return Map.of("results", answers, "lac", handle.getLastAddConfirmed());
    }

    private static byte[] pattern(long number, int size) {
        byte[] word = (number + " ").getBytes(java.nio.charset.StandardCharsets.US_ASCII);
        byte[] payload = new byte[size];
        for (int at = 0; at < size; at++) {
            payload[at] = word[at % word.length];
        }
        return payload;
    }

    /** Arguments: handle, entry, payload. For a ledger created with "adv", where the caller numbers entries. */
    private Object write(Request request) throws Exception {
        WriteAdvHandle handle = (WriteAdvHandle) sessions.handle(request);
        return request.await(handle.writeAsync(
                request.number("entry"), Unpooled.wrappedBuffer(request.bytes("payload"))));
    }

    private Object force(Request request) throws Exception {
        request.await(sessions.handle(request).force());
        return sessions.handle(request).getLastAddConfirmed();
    }

    private Object close(Request request) throws Exception {
        request.await(sessions.handle(request).closeAsync());
        return stateOf(sessions.handle(request));
    }

    /** Arguments: handle, entry, timeoutMs, parallel. {"lac": id, "entry": one entry or null}. */
    private Object longPoll(Request request) throws Exception {
        LedgerHandle handle = sessions.handle(request);
        try (LastConfirmedAndEntry found = request.await(handle.readLastAddConfirmedAndEntryAsync(
                request.number("entry"), request.number("timeoutMs"), request.flag("parallel")))) {
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("lac", found.getLastAddConfirmed());
            answer.put("entry", found.hasEntry() ? entry(found.getEntry()) : null);
            return answer;
        }
    }

    private Object readExplicitLac(Request request) throws Exception {
        CompletableFuture<Long> answer = new CompletableFuture<>();
        sessions.handle(request).asyncReadExplicitLastConfirmed((code, lac, context) -> {
            if (code == BKException.Code.OK) {
                answer.complete(lac);
            } else {
                answer.completeExceptionally(BKException.create(code));
            }
        }, null);
        return request.await(answer);
    }

    private static List<Object> entries(LedgerEntries found) {
        try (found) {
            List<Object> entries = new ArrayList<>();
            found.forEach(each -> entries.add(entry(each)));
            return entries;
        }
    }

    private static Map<String, Object> entry(LedgerEntry entry) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("entry", entry.getEntryId());
        answer.put("length", entry.getLength());
        answer.put("payload", Base64.getEncoder().encodeToString(entry.getEntryBytes()));
        return answer;
    }
}
