package bkbox.upstream;

import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;

/**
 * A bkbox bookie, configured as a Java bookie was to be: the processes of one {@code bkbox run}.
 *
 * <p>It is known by its first folder for ledgers. To start a configuration whose folder has been used before is to
 * restart that bookie.
 */
public final class BookieProcess {
    private final ServerConfiguration configuration;
    private final BookieSocketAddress address;
    private final BookieId id;
    private final String folder;
    private volatile boolean running;

    public BookieProcess(ServerConfiguration configuration) throws IOException {
        this.configuration = configuration;
        refuseWhatIsNotMapped(configuration);
        address = BookieImpl.getBookieAddress(configuration);
        id = BookieImpl.getBookieId(configuration);
        folder = configuration.getLedgerDirNames()[0];
    }

    /** A port that no test process uses. */
    public static int freePort() throws IOException {
        return Control.ask(Map.of("do", "free_port")).asInt();
    }

    public BookieId id() {
        return id;
    }

    public BookieSocketAddress address() {
        return address;
    }

    /** Whether it was started and not stopped since. */
    public boolean isRunning() {
        return running;
    }

    /** Returns when it serves. */
    public void start() throws IOException {
        Map<String, Object> request = new HashMap<>();
        request.put("do", "start");
        request.put("folder", folder);
        request.put("disks", configuration.getLedgerDirNames().length);
        request.put("metadata", configuration.getMetadataServiceUriUnchecked());
        request.put("port", address.getPort());
        request.put("settings", settings());
        Control.ask(request);
        running = true;
    }

    /** An ordered stop. */
    public void stop() throws IOException {
        tell("stop");
        running = false;
    }

    /** SIGKILL for all of its processes. */
    public void kill() throws IOException {
        tell("kill");
        running = false;
    }

    /** It keeps its connections and does nothing at all. */
    public void suspend() throws IOException {
        tell("suspend");
    }

    public void resume() throws IOException {
        tell("resume");
    }

    /** It collects what was deleted; returns when that is done. */
    public void collect() throws IOException {
        tell("collect");
    }

    public void setReadOnly(boolean wanted) throws IOException {
        tell(wanted ? "read_only_on" : "read_only_off");
    }

    public boolean isReadOnly() throws IOException {
        return !Control.ask(Map.of("do", "is_writable", "folder", folder)).asBoolean();
    }

    @Override
    public String toString() {
        return "bkbox bookie " + id;
    }

    private void tell(String what) throws IOException {
        Control.ask(Map.of("do", what, "folder", folder));
    }

    /** Keys of bkbox's configuration. A Java bookie collects what was deleted at once and keeps no trash. */
    private Map<String, Object> settings() throws IOException {
        Map<String, Object> found = new LinkedHashMap<>(Security.keys(configuration, Path.of(folder)));
        if (!address.getHostName().equals("127.0.0.1")) {
            found.put("advertised_host", address.getHostName());
        }
        if (!id.equals(address.toBookieId())) {
            found.put("bookie_id", id.toString());
        }
        found.put("gc_interval_s", configuration.getGcWaitTime() / 1000.0);
        found.put("gc_confirm_s", 0);
        found.put("gc_trash_s", 0);
        return found;
    }

    private static void refuseWhatIsNotMapped(ServerConfiguration configuration) {
        if (configuration.isForceReadOnlyBookie()) {
            throw new OutOfScopeException("a bookie that starts read-only is not mapped to bkbox's configuration");
        }
    }
}
