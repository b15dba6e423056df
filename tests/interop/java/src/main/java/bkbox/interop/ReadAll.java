package bkbox.interop;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Reads closed ledgers with Apache's client, one after the other, so many entries with each call: one JSON document on
 * standard output. Arguments: uri, entries of a call, times that all is read (the last one counts), ids of ledgers.
 */
public final class ReadAll {
    private ReadAll() {}

    @SuppressWarnings("try") // what closing the client throws when it is interrupted
    public static void main(String[] given) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(given[0]);
        configuration.setUseV2WireProtocol(true);
        configuration.setThrottleValue(0);
        int step = Integer.parseInt(given[1]);
        Map<String, Object> result = new LinkedHashMap<>();
        try (BookKeeper client = new BookKeeper(configuration)) {
            for (int round = 0; round < Integer.parseInt(given[2]); round++) {
                long entries = 0;
                long bytes = 0;
                long start = System.nanoTime();
                for (int at = 3; at < given.length; at++) {
                    LedgerHandle handle = client.openLedgerNoRecovery(
                            Long.parseLong(given[at]), BookKeeper.DigestType.CRC32C, new byte[0]);
                    long last = handle.getLastAddConfirmed();
                    for (long first = 0; first <= last; first += step) {
                        Enumeration<LedgerEntry> found =
                                handle.readEntries(first, Math.min(first + step - 1, last));
                        while (found.hasMoreElements()) {
                            bytes += found.nextElement().getEntry().length;
                            entries++;
                        }
                    }
                    handle.close();
                }
                result.put("entries", entries);
                result.put("bytes", bytes);
                result.put("seconds", (System.nanoTime() - start) / 1e9);
            }
        }
        System.out.println(new ObjectMapper().writeValueAsString(result));
    }
}
