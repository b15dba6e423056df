/* A load of adds in a closed loop, written from docs/protocol.md alone: it shares nothing with bkbox's own load generator,
   so that the two can check each other. A thread for each connection, with a blocking socket: it fills its window with one
   send, takes what responses there are, and begins again. Every latency is kept and sorted: percentiles are exact.

   Called by foreign.py with HOST PORT FIRST_LEDGER LEDGERS CONNECTIONS WINDOW SIZE WARMUP_S SECONDS ENTRIES, where ENTRIES,
   if not 0, is the number in each ledger that ends the load instead of SECONDS. Prints one JSON object. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LENGTH = 4, HEADER = 4, KEY = 20, ENTRY_HEADER = 32, RESPONSE = 28, RECEIVED = 1 << 16, SILENCE_S = 30 };

/* Section 4.3: the master key of the empty password. */
static const unsigned char master_key[KEY] = {0x85, 0x0b, 0xf1, 0x07, 0x1c, 0x5e, 0x3d, 0x8c, 0x24, 0x23,
                                              0x56, 0x76, 0xf8, 0x81, 0x6a, 0xe0, 0xcb, 0xe2, 0xf1, 0x4f};

struct connection {
    pthread_t thread;
    int socket;
    int64_t first_ledger, ledgers;   /* those of this connection */
    int64_t sent, answered, unconfirmed; /* requests by number; all below 'unconfirmed' have their response */
    int64_t counted, errors, room;
    uint32_t *latencies; /* of what was counted, in ns, at most 4.29 s */
    int64_t *sent_at;    /* by number modulo 'slots'; 0: answered */
    int64_t slots;
};

static struct sockaddr_in address;
static unsigned char *letters; /* the alphabet over and over: the payload of each entry begins somewhere in the first one */
static int64_t window, size, entries, count_from, count_until;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "not by the protocol");
    exit(1);
}

static void *allocate(void *old, size_t bytes) {
    void *found = realloc(old, bytes);
    if (!found) fail("memory");
    return found;
}

static unsigned char *put64(unsigned char *to, int64_t value) {
    uint64_t big = htobe64((uint64_t)value);
    memcpy(to, &big, 8);
    return to + 8;
}

static int64_t get64(const unsigned char *from) {
    uint64_t big;
    memcpy(&big, from, 8);
    return (int64_t)be64toh(big);
}

static uint32_t get32(const unsigned char *from) {
    uint32_t big;
    memcpy(&big, from, 4);
    return be32toh(big);
}

/* Sections 1, 2.1, 2.2 and 4.1: an ADD with an entry without a digest. */
static unsigned char *put_add(unsigned char *to, struct connection *of, int64_t number) {
    int64_t entry = number / of->ledgers, place = number % of->ledgers;
    uint32_t length = htobe32(HEADER + KEY + ENTRY_HEADER + size);
    int64_t confirmed = of->unconfirmed > place ? (of->unconfirmed - 1 - place) / of->ledgers : -1;
    memcpy(to, &length, LENGTH);
    memcpy(to + LENGTH, "\x02\x01\x00\x00", HEADER);
    memcpy(to + LENGTH + HEADER, master_key, KEY);
    to = put64(to + LENGTH + HEADER + KEY, of->first_ledger + place);
    to = put64(to, entry);
    to = put64(to, confirmed);
    to = put64(to, (entry + 1) * size);
    memcpy(to, letters + entry % 26, size);
    return to + size;
}

static void send_all(int to, const unsigned char *data, size_t length) {
    while (length) {
        ssize_t sent = send(to, data, length, MSG_NOSIGNAL);
        if (sent < 0) fail("send");
        data += sent;
        length -= sent;
    }
}

static void take(struct connection *of, const unsigned char *response, int64_t now) {
    int64_t place = get64(response + 12) - of->first_ledger, number = get64(response + 20) * of->ledgers + place;
    errno = 0;
    if (get32(response) != RESPONSE - LENGTH || memcmp(response + 4, "\x02\x01\x00\x00", HEADER) || place < 0 ||
        place >= of->ledgers || number < of->unconfirmed || number >= of->sent || !of->sent_at[number % of->slots])
        fail("a response");
    int64_t took = now - of->sent_at[number % of->slots];
    of->sent_at[number % of->slots] = 0;
    of->answered++;
    while (of->unconfirmed < of->sent && !of->sent_at[of->unconfirmed % of->slots]) of->unconfirmed++;
    if (get32(response + 8)) of->errors++;
    else if (now >= count_from && (entries || now < count_until)) {
        if (of->counted == of->room) {
            of->room = of->room ? 2 * of->room : 1 << 16;
            of->latencies = allocate(of->latencies, of->room * sizeof *of->latencies);
        }
        of->latencies[of->counted++] = took < UINT32_MAX ? took : UINT32_MAX;
    }
}

static void *run(void *argument) {
    struct connection *of = argument;
    int64_t frame = LENGTH + HEADER + KEY + ENTRY_HEADER + size, limit = entries ? entries * of->ledgers : INT64_MAX;
    unsigned char *requests = allocate(NULL, window * frame), received[RECEIVED];
    size_t filled = 0;
    for (;;) {
        int64_t now = now_ns();
        unsigned char *end = requests;
        if (entries || now < count_until)
            while (of->sent - of->answered < window && of->sent - of->unconfirmed < of->slots && of->sent < limit) {
                of->sent_at[of->sent % of->slots] = now;
                end = put_add(end, of, of->sent++);
            }
        send_all(of->socket, requests, end - requests);
        if (of->sent == of->answered) break;
        ssize_t came = recv(of->socket, received + filled, sizeof received - filled, 0);
        if (came == 0) errno = ECONNRESET;
        if (came <= 0) fail("receive");
        now = now_ns();
        filled += came;
        size_t at = 0;
        for (; filled - at >= RESPONSE; at += RESPONSE) take(of, received + at, now);
        memmove(received, received + at, filled - at);
        filled -= at;
    }
    free(requests);
    return NULL;
}

static int connected(void) {
    int made = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct timeval silence = {SILENCE_S, 0};
    if (made < 0 || connect(made, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    return made;
}

static void sleep_until(int64_t until) {
    struct timespec at = {until / 1000000000, until % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
}

static int by_value(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

static double percentile_us(const uint32_t *sorted, int64_t count, double percent) {
    int64_t wanted = (int64_t)(count * percent / 100);
    return count ? sorted[wanted < count ? wanted : count - 1] / 1e3 : 0;
}

int main(int argc, char **argv) {
    if (argc != 11) return 2;
    address.sin_family = AF_INET;
    address.sin_port = htons(atoi(argv[2]));
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) return 2;
    int64_t first_ledger = atoll(argv[3]), ledgers = atoll(argv[4]), connections = atoll(argv[5]);
    window = atoll(argv[6]), size = atoll(argv[7]), entries = atoll(argv[10]);
    if (ledgers < 1 || connections < 1 || window < 1 || size < 0 || entries < 0) return 2;
    if (connections > ledgers) connections = ledgers;
    letters = allocate(NULL, size + 26);
    for (int64_t i = 0; i < size + 26; i++) letters[i] = 'a' + i % 26;
    struct connection *all = allocate(NULL, connections * sizeof *all);
    memset(all, 0, connections * sizeof *all);
    for (int64_t i = 0; i < connections; i++) {
        all[i].socket = connected();
        all[i].first_ledger = first_ledger + ledgers * i / connections;
        all[i].ledgers = first_ledger + ledgers * (i + 1) / connections - all[i].first_ledger;
        all[i].slots = 4 * window;
        all[i].sent_at = allocate(NULL, all[i].slots * sizeof *all[i].sent_at);
        memset(all[i].sent_at, 0, all[i].slots * sizeof *all[i].sent_at);
    }
    int64_t begin = now_ns();
    count_from = begin + (entries ? 0 : (int64_t)(atof(argv[8]) * 1e9));
    count_until = count_from + (int64_t)(atof(argv[9]) * 1e9);
    for (int64_t i = 0; i < connections; i++)
        if (pthread_create(&all[i].thread, NULL, run, &all[i])) fail("thread");
    sleep_until(count_from);
    double used = cpu_s();
    if (!entries) {
        sleep_until(count_until);
        used = cpu_s() - used;
    }
    int64_t counted = 0, errors = 0, sent = 0, copied = 0;
    for (int64_t i = 0; i < connections; i++) {
        pthread_join(all[i].thread, NULL);
        counted += all[i].counted, errors += all[i].errors, sent += all[i].sent;
    }
    double seconds = ((entries ? now_ns() : count_until) - count_from) * 1e-9;
    if (entries) used = cpu_s() - used;
    uint32_t *sorted = allocate(NULL, (counted + 1) * sizeof *sorted);
    for (int64_t i = 0; i < connections; copied += all[i++].counted)
        memcpy(sorted + copied, all[i].latencies, all[i].counted * sizeof *sorted);
    qsort(sorted, counted, sizeof *sorted, by_value);
    printf("{\"requests\": %lld, \"errors\": %lld, \"sent\": %lld, \"seconds\": %.6f, \"per_s\": %.3f, "
           "\"p50_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f, \"p9999_us\": %.3f, \"max_us\": %.3f, "
           "\"load_cpu_s_per_million\": %.3f}\n",
           (long long)counted, (long long)errors, (long long)sent, seconds, counted / seconds,
           percentile_us(sorted, counted, 50), percentile_us(sorted, counted, 99), percentile_us(sorted, counted, 99.9),
           percentile_us(sorted, counted, 99.99), percentile_us(sorted, counted, 100),
           used * 1e6 / (counted ? counted : 1));
    return 0;
}
