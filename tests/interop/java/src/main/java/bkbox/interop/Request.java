package bkbox.interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** One command with its arguments. A missing argument without a default is an error. */
record Request(JsonNode arguments) {
    private static final long WAIT_MS_DEFAULT = 30_000;

    private JsonNode needed(String name) {
        JsonNode value = arguments.get(name);
        if (value == null || value.isNull()) {
            throw new IllegalArgumentException("argument " + name + " is missing");
        }
        return value;
    }

    boolean has(String name) {
        return arguments.hasNonNull(name);
    }

    String text(String name) {
        return needed(name).asText();
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    long number(String name) {
        return needed(name).asLong();
    }

    long number(String name, long otherwise) {
        return has(name) ? number(name) : otherwise;
    }

    boolean flag(String name) {
        return has(name) && arguments.get(name).asBoolean();
    }

    /** Bytes travel as base64. */
    byte[] bytes(String name) {
        return has(name) ? Base64.getDecoder().decode(text(name)) : new byte[0];
    }

    List<byte[]> listOfBytes(String name) {
        List<byte[]> values = new ArrayList<>();
        needed(name).forEach(value -> values.add(Base64.getDecoder().decode(value.asText())));
        return values;
    }

    Map<String, String> map(String name) {
        Map<String, String> values = new LinkedHashMap<>();
        if (has(name)) {
            arguments.get(name).properties().forEach(e -> values.put(e.getKey(), e.getValue().asText()));
        }
        return values;
    }

    /** The result of something asynchronous, within the request's "waitMs". */
    <T> T await(CompletableFuture<T> future) throws Exception {
        return future.get(number("waitMs", WAIT_MS_DEFAULT), TimeUnit.MILLISECONDS);
    }
}
