package bkbox.upstream;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Asks the test process that started this JVM to start, stop, pause, … bookies (tests/upstream/control.py).
 *
 * <p>One connection per request: a JSON object a line in each direction. The answer is {"result": value} or
 * {"error": text}.
 */
final class Control {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PORT = Integer.getInteger("bkbox.control");

    private Control() {}

    /** The result; IOException with the reason where the request failed. */
    static JsonNode ask(Map<String, Object> request) throws IOException {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), PORT)) {
            byte[] line = (JSON.writeValueAsString(request) + "\n").getBytes(StandardCharsets.UTF_8);
            socket.getOutputStream().write(line);
            var reader = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
            String answer = reader.readLine();
            if (answer == null) {
                throw new IOException("no answer to " + request);
            }
            JsonNode read = JSON.readTree(answer);
            if (read.has("error")) {
                throw new IOException(request.get("do") + ": " + read.get("error").asText());
            }
            return read.get("result");
        }
    }
}
