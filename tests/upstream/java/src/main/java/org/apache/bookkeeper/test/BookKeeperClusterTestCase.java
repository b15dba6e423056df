package org.apache.bookkeeper.test;

import bkbox.upstream.BookieProcess;
import bkbox.upstream.OutOfScopeException;
import bkbox.upstream.StandIns;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.MockUncleanShutdownDetection;
import org.apache.bookkeeper.client.BookKeeperTestClient;
import org.apache.bookkeeper.common.allocator.PoolingPolicy;
import org.apache.bookkeeper.conf.AbstractConfiguration;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.conf.TestBKConfiguration;
import org.apache.bookkeeper.metastore.InMemoryMetaStore;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.replication.Auditor;
import org.apache.bookkeeper.replication.AutoRecoveryMain;
import org.apache.bookkeeper.replication.ReplicationWorker;
import org.apache.bookkeeper.stats.ThreadRegistry;
import org.apache.zookeeper.ZooKeeper;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.rules.TestName;
import org.junit.rules.Timeout;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What Apache BookKeeper's tests of clusters extend, in front of bkbox bookies.
 *
 * <p>It is found on the class path before the class of the same name that the tests were compiled with, and has its
 * members. ZooKeeper runs in this JVM, as there. Where a Java bookie was started in this JVM there, a bkbox bookie is
 * started as processes of its own; but for a bookie that the test itself has made (of a class of its own, to misbehave):
 * that one runs here, beside bkbox's.
 */
public abstract class BookKeeperClusterTestCase {
    static final Logger LOG = LoggerFactory.getLogger(BookKeeperClusterTestCase.class);

    /** Seconds that a test may take at least: to start processes on a busy machine takes longer than to start threads. */
    private static final int PATIENCE_S = 270;

    @Rule
    public final TestName runtime = new TestName();

    @Rule
    public final Timeout globalTimeout;

    protected String testName;
    protected final ZooKeeperCluster zkUtil;
    protected ZooKeeper zkc;
    protected String metadataServiceUri;
    protected final TmpDirs tmpDirs = new TmpDirs();
    protected final List<ServerTester> servers = new ArrayList<>();
    protected int numBookies;
    protected BookKeeperTestClient bkc;
    protected boolean useUUIDasBookieId = true;
    protected final ServerConfiguration baseConf = TestBKConfiguration.newServerConfiguration();
    protected final ClientConfiguration baseClientConf = TestBKConfiguration.newClientConfiguration();

    /** Present because the compiled class has it. */
    SynchronousQueue<Throwable> asyncExceptions = new SynchronousQueue<>();

    private final Queue<Throwable> captured = new ConcurrentLinkedQueue<>();
    private boolean withAutoRecovery;

    /** The test has ended: its bookies need no ordered stop. */
    private boolean isOver;

    public BookKeeperClusterTestCase(int numBookies) {
        this(numBookies, PATIENCE_S);
    }

    public BookKeeperClusterTestCase(int numBookies, int testTimeoutSecs) {
        this(numBookies, 1, testTimeoutSecs);
    }

    public BookKeeperClusterTestCase(int numBookies, int numOfZKNodes, int testTimeoutSecs) {
        this.numBookies = numBookies;
        globalTimeout = Timeout.seconds(Math.max(testTimeoutSecs, PATIENCE_S));
        zkUtil = zooKeeper(numOfZKNodes);
    }

    private static ZooKeeperCluster zooKeeper(int servers) {
        if (servers == 1) {
            return new ZooKeeperUtil();
        }
        try {
            return new ZooKeeperClusterUtil(servers);
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    // ---- begin and end of a test ----------------------------------------------------------------------------------

    @Before
    @BeforeEach
    public void setUp() throws Exception {
        setUp("/ledgers");
    }

    @Before
    public void setTestNameJunit4() {
        testName = runtime.getMethodName();
    }

    @BeforeEach
    void setTestNameJunit5(TestInfo info) {
        testName = info.getDisplayName();
    }

    protected void setUp(String ledgersRootPath) throws Exception {
        InMemoryMetaStore.reset();
        setMetastoreImplClass(baseConf);
        setMetastoreImplClass(baseClientConf);
        startZKCluster();
        metadataServiceUri = getMetadataServiceUri(ledgersRootPath);
        startBKCluster(metadataServiceUri);
    }

    @After
    @AfterEach
    public void tearDown() throws Exception {
        isOver = true;
        try {
            stopBKCluster();
        } finally {
            try {
                stopZKCluster();
            } finally {
                tmpDirs.cleanup();
            }
        }
        if (!captured.isEmpty()) {
            throw new AssertionError("a thread of the test failed", captured.peek());
        }
    }

    @After
    public void clearMetricsThreadRegistry() throws Exception {
        ThreadRegistry.clear();
    }

    /** What fails in another thread than the test's fails the test. */
    protected void captureThrowable(Runnable work) {
        try {
            work.run();
        } catch (Throwable failure) {
            captured.add(failure);
        }
    }

    protected void startZKCluster() throws Exception {
        zkUtil.startCluster();
        zkc = zkUtil.getZooKeeperClient();
    }

    protected void stopZKCluster() throws Exception {
        zkUtil.killCluster();
    }

    protected void startBKCluster(String uri) throws Exception {
        baseConf.setMetadataServiceUri(uri);
        baseClientConf.setMetadataServiceUri(uri);
        baseClientConf.setAllocatorPoolingPolicy(PoolingPolicy.UnpooledHeap);
        if (numBookies > 0) {
            bkc = new BookKeeperTestClient(baseClientConf, new TestStatsProvider());
        }
        List<ServerConfiguration> configurations = new ArrayList<>();
        for (int number = 0; number < numBookies; number++) {
            configurations.add(newServerConfiguration());
        }
        startAndAddAll(configurations);
    }

    protected void stopBKCluster() throws Exception {
        if (bkc != null) {
            bkc.close();
        }
        stopReplicationService();
        beside(servers, isOver ? ServerTester::kill : ServerTester::shutdown);
        servers.clear();
    }

    protected void stopAllBookies() throws Exception {
        stopAllBookies(true);
    }

    protected void stopAllBookies(boolean shutdownClient) throws Exception {
        stopReplicationService();
        beside(servers, ServerTester::shutdown);
        servers.clear();
        if (shutdownClient && bkc != null) {
            bkc.close();
            bkc = null;
        }
    }

    // ---- configurations -------------------------------------------------------------------------------------------

    protected String getMetadataServiceUri(String ledgersRootPath) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath);
    }

    protected String newMetadataServiceUri(String ledgersRootPath) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath);
    }

    protected String newMetadataServiceUri(String ledgersRootPath, String type) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath, type);
    }

    /** One kind of ledger manager keeps its metadata there, in the memory of the test. */
    public void setMetastoreImplClass(AbstractConfiguration<?> configuration) {
        configuration.setMetastoreImplClass(InMemoryMetaStore.class.getName());
    }

    protected ServerConfiguration newServerConfiguration() throws Exception {
        File folder = tmpDirs.createNew("bookie", "test");
        return newServerConfiguration(BookieProcess.freePort(), folder, new File[] {folder});
    }

    protected ServerConfiguration newServerConfiguration(int port, File journalDir, File[] ledgerDirs) {
        ServerConfiguration made = new ServerConfiguration(baseConf);
        made.setBookiePort(port);
        made.setJournalDirName(journalDir.getPath());
        made.setLedgerDirNames(Stream.of(ledgerDirs).map(File::getPath).toArray(String[]::new));
        made.setAllocatorPoolingPolicy(PoolingPolicy.UnpooledHeap);
        made.setEnableTaskExecutionStats(true);
        return made;
    }

    protected ClientConfiguration newClientConfiguration() {
        return new ClientConfiguration(baseClientConf);
    }

    // ---- which bookies there are ----------------------------------------------------------------------------------

    public BookieId getBookie(int index) throws Exception {
        return servers.get(index).id();
    }

    protected BookieId addressByIndex(int index) throws Exception {
        return servers.get(index).id();
    }

    protected List<BookieId> bookieAddresses() throws Exception {
        return new ArrayList<>(servers.stream().map(ServerTester::id).toList());
    }

    protected List<File> bookieLedgerDirs() throws Exception {
        return folders(ServerConfiguration::getLedgerDirs);
    }

    protected List<File> bookieJournalDirs() throws Exception {
        return folders(ServerConfiguration::getJournalDirs);
    }

    private List<File> folders(Function<ServerConfiguration, File[]> folders) {
        return servers.stream().map(ServerTester::getConfiguration).map(folders).flatMap(Stream::of).toList();
    }

    protected BookieServer serverByIndex(int index) throws Exception {
        return servers.get(index).getServer();
    }

    protected ServerConfiguration confByIndex(int index) throws Exception {
        return servers.get(index).getConfiguration();
    }

    protected int indexOfServer(BookieServer server) throws Exception {
        return servers.stream().map(ServerTester::getServer).toList().indexOf(server);
    }

    protected int lastBookieIndex() {
        return servers.size() - 1;
    }

    protected int bookieCount() {
        return servers.size();
    }

    public ServerConfiguration getBkConf(BookieId id) throws Exception {
        return tester(id).getConfiguration();
    }

    public boolean isCreatedFromIp(BookieId id) {
        return bkc.getBookieAddressResolver().resolve(id).getSocketAddress().toString().startsWith("/");
    }

    private int indexOf(BookieId id) {
        return servers.stream().map(ServerTester::id).toList().indexOf(id);
    }

    private ServerTester tester(BookieId id) throws IOException {
        int index = indexOf(id);
        if (index < 0) {
            throw new IOException("no bookie " + id + " is in " + servers);
        }
        return servers.get(index);
    }

    // ---- what happens to them -------------------------------------------------------------------------------------

    public int startNewBookie() throws Exception {
        return startNewBookieAndReturnAddress().getPort();
    }

    public BookieSocketAddress startNewBookieAndReturnAddress() throws Exception {
        return startAndAddBookie(newServerConfiguration()).getAddress();
    }

    public BookieId startNewBookieAndReturnBookieId() throws Exception {
        return startAndAddBookie(newServerConfiguration()).id();
    }

    protected ServerTester startAndAddBookie(ServerConfiguration configuration) throws Exception {
        ServerTester tester = startBookie(configuration);
        servers.add(tester);
        return tester;
    }

    protected ServerTester startAndAddBookie(ServerConfiguration configuration, Bookie bookie) throws Exception {
        ServerTester tester = startBookie(configuration, bookie);
        servers.add(tester);
        return tester;
    }

    protected ServerTester startBookie(ServerConfiguration configuration) throws Exception {
        return started(new ServerTester(configuration));
    }

    protected ServerTester startBookie(ServerConfiguration configuration, Bookie bookie) throws Exception {
        return started(new ServerTester(configuration, bookie));
    }

    /** Beside one another; they are added in the order of their configurations. */
    private void startAndAddAll(List<ServerConfiguration> configurations) throws Exception {
        List<ServerTester> testers = new ArrayList<>();
        for (ServerConfiguration configuration : configurations) {
            testers.add(new ServerTester(configuration));
        }
        beside(testers, this::started);
        servers.addAll(testers);
    }

    private ServerTester started(ServerTester tester) throws Exception {
        BookKeeperTestClient client = client();
        Future<?> registered = tester.getConfiguration().isForceReadOnlyBookie()
                ? client.waitForReadOnlyBookie(tester.id())
                : client.waitForWritableBookie(tester.id());
        tester.getServer().start();
        registered.get(60, TimeUnit.SECONDS);
        if (withAutoRecovery) {
            tester.startAutoRecovery();
        }
        return tester;
    }

    private synchronized BookKeeperTestClient client() throws Exception {
        if (bkc == null) {
            bkc = new BookKeeperTestClient(baseClientConf, new TestStatsProvider());
        }
        return bkc;
    }

    public ServerConfiguration killBookie(int index) throws Exception {
        ServerTester tester = servers.remove(index);
        tester.shutdown();
        return tester.getConfiguration();
    }

    /** Null where there is no such bookie. */
    public ServerConfiguration killBookie(BookieId id) throws Exception {
        int index = indexOf(id);
        return index < 0 ? null : killBookie(index);
    }

    public ServerConfiguration killBookieAndWaitForZK(int index) throws Exception {
        BookieId id = servers.get(index).id();
        ServerConfiguration configuration = killBookie(index);
        String root = java.net.URI.create(metadataServiceUri).getPath();
        while (zkc.exists(root + "/available/" + id, false) != null) {
            Thread.sleep(50);
        }
        return configuration;
    }

    public void setBookieToReadOnly(BookieId id) throws Exception {
        if (indexOf(id) >= 0) {
            tester(id).getServer().getBookie().getStateManager().transitionToReadOnlyMode().get();
        }
    }

    /** The latch is counted down when it sleeps. */
    public CountDownLatch sleepBookie(BookieId id, int seconds) throws Exception {
        CountDownLatch sleeps = new CountDownLatch(1);
        sleep(id, sleeps, () -> TimeUnit.SECONDS.sleep(seconds));
        return sleeps;
    }

    /** Returns when it sleeps, which it does until the latch is counted down. */
    public void sleepBookie(BookieId id, CountDownLatch until) throws InterruptedException, IOException {
        CountDownLatch sleeps = new CountDownLatch(1);
        sleepBookie(id, until, sleeps);
        sleeps.await();
    }

    public void sleepBookie(BookieId id, CountDownLatch until, CountDownLatch sleeps)
            throws InterruptedException, IOException {
        sleep(id, sleeps, until::await);
    }

    private interface Pause {
        void await() throws InterruptedException;
    }

    private void sleep(BookieId id, CountDownLatch sleeps, Pause pause) throws IOException {
        BookieServer server = tester(id).getServer();
        Thread sleeper = new Thread(() -> {
            try {
                server.suspendProcessing();
                if (sleeps != null) {
                    sleeps.countDown();
                }
                pause.await();
                server.resumeProcessing();
            } catch (InterruptedException | RuntimeException failure) {
                LOG.error("{} could not be put to sleep and woken", id, failure);
            }
        }, "sleep of " + id);
        sleeper.setDaemon(true);
        sleeper.start();
    }

    public void restartBookie(BookieId id) throws Exception {
        tester(id);
        startAndAddBookie(killBookie(id));
    }

    public void restartBookies() throws Exception {
        restartBookies(UnaryOperator.identity());
    }

    public void restartBookies(Function<ServerConfiguration, ServerConfiguration> change) throws Exception {
        stopReplicationService();
        beside(servers, ServerTester::shutdown);
        List<ServerConfiguration> changed = servers.stream().map(ServerTester::getConfiguration).map(change).toList();
        servers.clear();
        startAndAddAll(changed);
    }

    private interface Step {
        void on(ServerTester tester) throws Exception;
    }

    /** All at the same time; the first failure, once all have ended. */
    private static void beside(List<ServerTester> testers, Step step) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        try {
            List<Future<?>> steps = new ArrayList<>();
            for (ServerTester tester : testers) {
                steps.add(threads.submit(() -> {
                    step.on(tester);
                    return null;
                }));
            }
            threads.shutdown();
            if (!threads.awaitTermination(PATIENCE_S, TimeUnit.SECONDS)) {
                throw new TimeoutException("bookies did not start or stop within " + PATIENCE_S + " s");
            }
            for (Future<?> each : steps) {
                each.get();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    // ---- autorecovery ---------------------------------------------------------------------------------------------

    public void setAutoRecoveryEnabled(boolean isAutoRecoveryEnabled) {
        withAutoRecovery = isAutoRecoveryEnabled;
    }

    public boolean isAutoRecoveryEnabled() {
        return withAutoRecovery;
    }

    public void startReplicationService() throws Exception {
        for (ServerTester tester : servers) {
            tester.startAutoRecovery();
        }
    }

    public void stopReplicationService() throws Exception {
        for (ServerTester tester : servers) {
            tester.stopAutoRecovery();
        }
    }

    /** The auditor in office, once its process has run for longer than its death watcher takes to end it. */
    public Auditor getAuditor(int timeout, TimeUnit unit) throws Exception {
        long end = System.nanoTime() + unit.toNanos(timeout);
        while (System.nanoTime() < end) {
            for (ServerTester tester : servers) {
                if (tester.hasAuditor()) {
                    Thread.sleep(tester.getConfiguration().getDeathWatchInterval() + 1000L);
                    if (tester.hasAuditor()) {
                        return tester.getAuditor();
                    }
                }
            }
            Thread.sleep(50);
        }
        throw new TimeoutException("no auditor within " + timeout + " " + unit);
    }

    // ---- statistics -----------------------------------------------------------------------------------------------

    public void resetBookieOpLoggers() {
        servers.forEach(tester -> tester.getStatsProvider().clear());
    }

    public TestStatsProvider getStatsProvider(BookieId id) throws java.net.UnknownHostException {
        return servers.get(indexOf(id)).getStatsProvider();
    }

    public TestStatsProvider getStatsProvider(int index) throws Exception {
        return servers.get(index).getStatsProvider();
    }

    /** One bookie, and the autorecovery daemon beside it. */
    public class ServerTester {
        private final ServerConfiguration configuration;
        private final BookieServer server;
        private final BookieId id;
        private final BookieSocketAddress address;

        /** Null where the bookie runs in this JVM. */
        private final BookieProcess process;

        private final TestStatsProvider stats = new TestStatsProvider();
        private AutoRecoveryMain autoRecovery;

        /** A bkbox bookie, not started. */
        public ServerTester(ServerConfiguration configuration) throws Exception {
            this.configuration = configuration;
            process = new BookieProcess(configuration);
            server = StandIns.server(process);
            id = process.id();
            address = process.address();
        }

        /** A bookie that the test has made, not started. */
        public ServerTester(ServerConfiguration configuration, Bookie bookie) throws Exception {
            this.configuration = configuration;
            process = null;
            server = new BookieServer(
                    configuration,
                    bookie,
                    stats.getStatsLogger(""),
                    UnpooledByteBufAllocator.DEFAULT,
                    new MockUncleanShutdownDetection());
            id = BookieImpl.getBookieId(configuration);
            address = BookieImpl.getBookieAddress(configuration);
        }

        public ServerConfiguration getConfiguration() {
            return configuration;
        }

        public BookieServer getServer() {
            return server;
        }

        public BookieSocketAddress getAddress() {
            return address;
        }

        public TestStatsProvider getStatsProvider() {
            if (process != null) {
                throw new OutOfScopeException("statistics of a bookie in the memory of the test");
            }
            return stats;
        }

        public void startAutoRecovery() throws Exception {
            autoRecovery = new AutoRecoveryMain(configuration);
            autoRecovery.start();
        }

        public void stopAutoRecovery() {
            if (autoRecovery != null) {
                autoRecovery.shutdown();
            }
        }

        public Auditor getAuditor() {
            return autoRecovery == null ? null : autoRecovery.getAuditor();
        }

        public ReplicationWorker getReplicationWorker() {
            return autoRecovery == null ? null : autoRecovery.getReplicationWorker();
        }

        public void shutdown() throws Exception {
            stopAutoRecovery();
            server.shutdown();
        }

        @Override
        public String toString() {
            return id.toString();
        }

        private BookieId id() {
            return id;
        }

        private void kill() throws Exception {
            if (process == null) {
                shutdown();
            } else {
                stopAutoRecovery();
                process.kill();
            }
        }

        private boolean hasAuditor() {
            Auditor auditor = getAuditor();
            ReplicationWorker worker = getReplicationWorker();
            return auditor != null && auditor.isRunning() && worker != null && worker.isRunning();
        }
    }
}
