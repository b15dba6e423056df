package bkbox.interop;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.bookkeeper.client.api.BKException;

/**
 * The real BookKeeper client behind one JSON object a line.
 *
 * <p>Request: {"id": n, "command": name, ...arguments}. Answer: {"id": n, "result": value} or
 * {"id": n, "error": {"class": simple name, "code": BookKeeper's code or null, "message": text}}.
 * Requests run at the same time, each on a thread of its own, and are answered as they end. The end
 * of the input ends the program.
 */
public final class Driver {
    /** A command's implementation. The result is what Jackson makes JSON of. */
    interface Command {
        Object run(Request request) throws Exception;
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, Command> commands = new LinkedHashMap<>();
    private final PrintStream answers = System.out;

    private Driver(Sessions sessions) {
        new ClientCommands(sessions).addTo(commands);
        new LedgerCommands(sessions).addTo(commands);
        commands.put("commands", request -> commands.keySet());
    }

    public static void main(String[] arguments) throws Exception {
        Sessions sessions = new Sessions();
        new Driver(sessions).serve();
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode message = (ObjectNode) JSON.readTree(line);
            threads.execute(() -> answer(message));
        }
    }

    private void answer(ObjectNode message) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", message.get("id"));
        try {
            Request request = new Request(message);
            Command command = commands.get(request.text("command"));
            if (command == null) {
                throw new IllegalArgumentException("no command " + request.text("command"));
            }
            answer.put("result", command.run(request));
        } catch (Throwable failure) { // whatever it is, who asked must hear of it
            answer.put("error", describe(failure));
        }
        try {
            String text = JSON.writeValueAsString(answer);
            synchronized (answers) {
                answers.println(text);
                answers.flush();
            }
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    static Map<String, Object> describe(Throwable failure) {
        Throwable cause = failure;
        while ((cause instanceof ExecutionException || cause instanceof CompletionException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        Map<String, Object> description = new LinkedHashMap<>();
        description.put("class", cause.getClass().getSimpleName());
        description.put("code", cause instanceof BKException known ? known.getCode() : null);
        description.put("message", String.valueOf(cause.getMessage()));
        return description;
    }
}
