package bkbox.interop;

import java.util.ArrayList;
import java.util.Base64;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;

/** What is asked of a client: ledgers as a whole, and bookies. */
final class ClientCommands {
    private final Sessions sessions;

    ClientCommands(Sessions sessions) {
        this.sessions = sessions;
    }

    void addTo(Map<String, Driver.Command> commands) {
        commands.put("connect", this::connect);
        commands.put("disconnect", this::disconnect);
        commands.put("create", this::create);
        commands.put("open", this::open);
        commands.put("recover", this::recover);
        commands.put("delete", this::delete);
        commands.put("list", this::list);
        commands.put("metadata", this::metadata);
        commands.put("bookies", this::bookies);
        commands.put("auditor", this::auditor);
        commands.put("bookieInfo", this::bookieInfo);
        commands.put("entriesOf", this::entriesOf);
    }

    /** Arguments: client, uri, protocol ("v2" or "v3"), conf (keys of the client's configuration). */
    private Object connect(Request request) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(request.text("uri"));
        configuration.setUseV2WireProtocol(request.text("protocol").equals("v2"));
        request.map("conf").forEach(configuration::setProperty);
        BookKeeper client = new BookKeeper(configuration);
        BookKeeperAdmin admin = new BookKeeperAdmin(client, configuration);
        sessions.putClient(request.text("client"), new Sessions.Session(client, admin));
        return null;
    }

    private Object disconnect(Request request) throws Exception {
        Sessions.Session session = sessions.removeClient(request);
        session.client().close();
        return null;
    }

    /** Arguments: client, handle, e, wq, aq, digest, password, custom, deferredSync, adv, ledgerId (adv). */
    private Object create(Request request) throws Exception {
        Map<String, byte[]> custom = new TreeMap<>();
        request.map("custom").forEach((key, value) -> custom.put(key, Base64.getDecoder().decode(value)));
        CreateBuilder builder = sessions.client(request).client().newCreateLedgerOp()
                .withEnsembleSize((int) request.number("e"))
                .withWriteQuorumSize((int) request.number("wq"))
                .withAckQuorumSize((int) request.number("aq"))
                .withDigestType(DigestType.valueOf(request.text("digest")))
                .withPassword(request.bytes("password"))
                .withCustomMetadata(custom);
        if (request.flag("deferredSync")) {
            builder = builder.withWriteFlags(EnumSet.of(WriteFlag.DEFERRED_SYNC));
        }
        LedgerHandle handle;
        if (request.flag("adv")) {
            var advanced = builder.makeAdv();
            if (request.has("ledgerId")) {
                advanced = advanced.withLedgerId(request.number("ledgerId"));
            }
            handle = (LedgerHandle) request.await(advanced.execute());
        } else {
            handle = (LedgerHandle) request.await(builder.execute());
        }
        sessions.putHandle(request, handle);
        return handle.getId();
    }

    /** Arguments: client, handle, ledger, digest, password, recovery. */
    private Object open(Request request) throws Exception {
        LedgerHandle handle = opened(request);
        sessions.putHandle(request, handle);
        return LedgerCommands.stateOf(handle);
    }

    private LedgerHandle opened(Request request) throws Exception {
        BookKeeper client = sessions.client(request).client();
        return (LedgerHandle) request.await(client.newOpenLedgerOp()
                .withLedgerId(request.number("ledger"))
                .withDigestType(DigestType.valueOf(request.text("digest")))
                .withPassword(request.bytes("password"))
                .withRecovery(request.flag("recovery"))
                .execute());
    }

    /** Open the ledger with recovery several times at once. The end that each of them found, or its error. */
    private Object recover(Request request) throws Exception {
        BookKeeper client = sessions.client(request).client();
        List<CompletableFuture<Object>> opens = new ArrayList<>();
        for (long time = 0; time < request.number("times"); time++) {
            opens.add(client.newOpenLedgerOp()
                    .withLedgerId(request.number("ledger"))
                    .withDigestType(DigestType.valueOf(request.text("digest")))
                    .withPassword(request.bytes("password"))
                    .withRecovery(true)
                    .execute()
                    .handle((handle, failure) -> failure == null
                            ? handle.getLastAddConfirmed()
                            : Driver.describe(failure)));
        }
        List<Object> outcomes = new ArrayList<>();
        for (CompletableFuture<Object> open : opens) {
            outcomes.add(request.await(open));
        }
        return outcomes;
    }

    private Object delete(Request request) throws Exception {
        BookKeeper client = sessions.client(request).client();
        request.await(client.newDeleteLedgerOp().withLedgerId(request.number("ledger")).execute());
        return null;
    }

    private Object list(Request request) throws Exception {
        List<Long> ledgers = new ArrayList<>();
        sessions.client(request).admin().listLedgers().forEach(ledgers::add);
        return ledgers;
    }

    private Object metadata(Request request) throws Exception {
        BookKeeper client = sessions.client(request).client();
        LedgerMetadata found = request.await(client.getLedgerMetadata(request.number("ledger")));
        Map<String, Object> ensembles = new LinkedHashMap<>();
        found.getAllEnsembles().forEach((first, members) ->
                ensembles.put(first.toString(), members.stream().map(BookieId::toString).toList()));
        Map<String, Object> custom = new TreeMap<>();
        found.getCustomMetadata().forEach((key, value) -> custom.put(key, text(value)));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("ledger", found.getLedgerId());
        answer.put("e", found.getEnsembleSize());
        answer.put("wq", found.getWriteQuorumSize());
        answer.put("aq", found.getAckQuorumSize());
        answer.put("state", found.getState().name());
        answer.put("last", found.getLastEntryId());
        answer.put("length", found.getLength());
        answer.put("digest", found.getDigestType().name());
        answer.put("password", text(found.getPassword()));
        answer.put("custom", custom);
        answer.put("ensembles", ensembles);
        answer.put("version", found.getMetadataFormatVersion());
        return answer;
    }

    /** Who is registered: {"writable": [...], "readonly": [...], "known": [...]}, known by cookie. */
    private Object bookies(Request request) throws BKException {
        BookKeeperAdmin admin = sessions.client(request).admin();
        return Map.of(
                "writable", admin.getAvailableBookies().stream().map(BookieId::toString).sorted().toList(),
                "readonly", admin.getReadOnlyBookies().stream().map(BookieId::toString).sorted().toList(),
                "known", admin.getAllBookies().stream().map(BookieId::toString).sorted().toList());
    }

    /** The id of the auditor in office; null for none. */
    private Object auditor(Request request) throws Exception {
        BookieId auditor = sessions.client(request).admin().getCurrentAuditor();
        return auditor == null ? null : auditor.toString();
    }

    /** Free and total bytes by bookie. */
    private Object bookieInfo(Request request) throws Exception {
        Map<String, Object> answer = new TreeMap<>();
        sessions.client(request).client().getBookieInfo().forEach((bookie, info) -> answer.put(
                bookie.toString(),
                Map.of("free", info.getFreeDiskSpace(), "total", info.getTotalDiskSpace())));
        return answer;
    }

    /** Arguments: client, bookie, ledger, end. The entries below end that the bookie says it has. */
    private Object entriesOf(Request request) throws Exception {
        AvailabilityOfEntriesOfLedger found = request.await(sessions.client(request).admin()
                .asyncGetListOfEntriesOfLedger(BookieId.parse(request.text("bookie")), request.number("ledger")));
        List<Long> entries = new ArrayList<>();
        for (long entry = 0; entry < request.number("end"); entry++) {
            if (found.isEntryAvailable(entry)) {
                entries.add(entry);
            }
        }
        return Map.of("entries", entries, "total", found.getTotalNumOfAvailableEntries());
    }

    private static String text(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
