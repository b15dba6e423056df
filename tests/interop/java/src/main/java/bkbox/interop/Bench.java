package bkbox.interop;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.AsyncCallback.ReadCallback;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * How fast Apache's client appends to one ledger and reads it back, in a closed loop: one JSON document on standard
 * output, with what this process has used of the CPUs per million entries. Arguments, each name=value: uri, protocol (v2, v3), batch (true: batch reads), e, wq, aq, size (bytes of
 * payload), window (entries outstanding), warmup and seconds (of appending, and of reading).
 */
public final class Bench {
    private static final byte[] PASSWORD = new byte[0];
    private static final int READ_ENTRIES = 100;
    private static final long SILENCE_S = 30;

    private final Map<String, String> arguments = new LinkedHashMap<>();
    private final BookKeeper client;
    private final int window;

    /** Latencies, and the first code that was not OK. */
    private static final class Tally {
        private final long[] nanos = new long[1 << 24];
        private final AtomicInteger count = new AtomicInteger();
        private final AtomicInteger failure = new AtomicInteger();
        private volatile boolean counts;
        private double cpuSeconds;

        void add(int code, long since, int times) {
            if (code != BKException.Code.OK) {
                failure.compareAndSet(0, code);
            } else if (counts) {
                long now = System.nanoTime();
                int at = count.getAndAdd(times);
                Arrays.fill(nanos, at, at + times, now - since);
            }
        }

        Map<String, Object> result(double seconds) {
            long[] sorted = Arrays.copyOf(nanos, count.get());
            Arrays.sort(sorted);
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("requests", sorted.length);
            result.put("seconds", seconds);
            result.put("per_s", sorted.length / seconds);
            result.put("p50_us", at(sorted, 0.5));
            result.put("p99_us", at(sorted, 0.99));
            result.put("p999_us", at(sorted, 0.999));
            result.put("max_us", at(sorted, 1.0));
            return result;
        }

        double cpuPerMillion() {
            return cpuSeconds * 1e6 / Math.max(count.get(), 1);
        }

        private static double at(long[] sorted, double share) {
            return sorted.length == 0 ? 0 : sorted[(int) Math.ceil((sorted.length - 1) * share)] / 1000.0;
        }
    }

    private Bench(String[] given) throws Exception {
        for (String argument : given) {
            String[] parts = argument.split("=", 2);
            arguments.put(parts[0], parts[1]);
        }
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments.get("uri"));
        configuration.setUseV2WireProtocol(arguments.get("protocol").equals("v2"));
        configuration.setThrottleValue(0); // as Pulsar does; 5,000 adds a second otherwise
        client = new BookKeeper(configuration);
        window = number("window");
    }

    public static void main(String[] given) throws Exception {
        Bench bench = new Bench(given);
        Map<String, Object> results = new LinkedHashMap<>();
        try {
            bench.append(bench.number("warmup"));
            bench.read(bench.appendCounted(results), results);
        } finally {
            bench.client.close();
        }
        System.out.println(new ObjectMapper().writeValueAsString(results));
    }

    private int number(String name) {
        return Integer.parseInt(arguments.get(name));
    }

    /** Appends that do not count, for the compiler. */
    private void append(int seconds) throws Exception {
        LedgerHandle handle = create();
        append(handle, new Tally(), seconds);
        handle.close();
    }

    /** The id of the ledger. */
    private long appendCounted(Map<String, Object> results) throws Exception {
        Tally tally = new Tally();
        LedgerHandle handle = create();
        append(handle, tally, 1);
        tally.counts = true;
        double seconds = append(handle, tally, number("seconds"));
        results.put("appends", tally.result(seconds));
        results.put("client_cpu_s_per_million", tally.cpuPerMillion());
        handle.close();
        return handle.getId();
    }

    private LedgerHandle create() throws Exception {
        return client.createLedger(
                number("e"), number("wq"), number("aq"), BookKeeper.DigestType.CRC32C, PASSWORD);
    }

    private double append(LedgerHandle handle, Tally tally, int seconds) throws Exception {
        byte[] payload = new byte[number("size")];
        for (int at = 0; at < payload.length; at++) {
            payload[at] = (byte) (at * 31 + 7);
        }
        Semaphore room = new Semaphore(window);
        double cpu = cpuSeconds();
        long start = System.nanoTime();
        long end = start + TimeUnit.SECONDS.toNanos(seconds);
        while (System.nanoTime() < end && tally.failure.get() == 0) {
            acquire(room, 1);
            long now = System.nanoTime();
            handle.asyncAddEntry(payload, (code, ledger, entry, context) -> {
                tally.add(code, now, 1);
                room.release();
            }, null);
        }
        double took = (System.nanoTime() - start) / 1e9;
        tally.cpuSeconds = cpuSeconds() - cpu;
        boolean counted = tally.counts;
        tally.counts = false;
        acquire(room, window);
        tally.counts = counted;
        check(tally);
        return took;
    }

    /** Reads the ledger over and over: first what does not count, then what does. */
    private void read(long ledger, Map<String, Object> results) throws Exception {
        LedgerHandle handle = client.openLedger(ledger, BookKeeper.DigestType.CRC32C, PASSWORD);
        Tally tally = new Tally();
        read(handle, tally, number("warmup"));
        tally.counts = true;
        double seconds = read(handle, tally, number("seconds"));
        results.put("reads", tally.result(seconds));
        results.put("read_cpu_s_per_million", tally.cpuPerMillion());
        handle.close();
    }

    private double read(LedgerHandle handle, Tally tally, int seconds) throws Exception {
        boolean batch = Boolean.parseBoolean(arguments.get("batch"));
        long last = handle.getLastAddConfirmed();
        Semaphore room = new Semaphore(Math.max(window / READ_ENTRIES, 1));
        int all = room.availablePermits();
        AtomicLong next = new AtomicLong();
        double cpu = cpuSeconds();
        long start = System.nanoTime();
        long end = start + TimeUnit.SECONDS.toNanos(seconds);
        while (System.nanoTime() < end && tally.failure.get() == 0) {
            acquire(room, 1);
            if (next.get() > last) {
                next.set(0);
            }
            long first = next.get();
            long until = Math.min(first + READ_ENTRIES - 1, last);
            next.set(until + 1);
            if (batch) {
                readBatch(handle, tally, first, until, System.nanoTime(), room);
            } else {
                handle.asyncReadEntries(first, until, taker(tally, System.nanoTime(), room), null);
            }
        }
        double took = (System.nanoTime() - start) / 1e9;
        tally.cpuSeconds = cpuSeconds() - cpu;
        boolean counted = tally.counts;
        tally.counts = false;
        acquire(room, all);
        tally.counts = counted;
        check(tally);
        return took;
    }

    private static ReadCallback taker(Tally tally, long since, Semaphore room) {
        return (code, handle, entries, context) -> {
            tally.add(code, since, code == BKException.Code.OK ? consume(entries) : 0);
            room.release();
        };
    }

    /** A bookie may answer with fewer entries than it was asked for. */
    private static void readBatch(
            LedgerHandle handle, Tally tally, long first, long until, long since, Semaphore room) {
        handle.asyncBatchReadEntries(first, (int) (until - first + 1), 0, (code, ignored, entries, context) -> {
            int found = code == BKException.Code.OK ? consume(entries) : 0;
            tally.add(code, since, found);
            if (code == BKException.Code.OK && found > 0 && first + found <= until) {
                readBatch(handle, tally, first + found, until, since, room);
            } else {
                room.release();
            }
        }, null);
    }

    private static int consume(Enumeration<LedgerEntry> entries) {
        int count = 0;
        while (entries.hasMoreElements()) {
            entries.nextElement().getEntry();
            count++;
        }
        return count;
    }

    private static double cpuSeconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    private static void acquire(Semaphore room, int permits) throws Exception {
        if (!room.tryAcquire(permits, SILENCE_S, TimeUnit.SECONDS)) {
            throw new TimeoutException("nothing was answered for " + SILENCE_S + " s");
        }
    }

    private static void check(Tally tally) throws Exception {
        if (tally.failure.get() != 0) {
            throw BKException.create(tally.failure.get());
        }
    }
}
