package bkbox.interop;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.bookkeeper.bookie.BookieShell;
import org.apache.bookkeeper.util.EntryFormatter;
import org.apache.bookkeeper.util.LedgerIdFormatter;
import org.apache.commons.configuration2.CompositeConfiguration;
import org.apache.commons.configuration2.PropertiesConfiguration;
import org.apache.commons.configuration2.builder.fluent.Configurations;

/**
 * BookKeeper's own command line, several commands in one JVM: one JSON list of words a line on
 * standard input. After what the command prints comes a line of MARK and its exit status.
 */
public final class Shell {
    private static final String MARK = "==== exit status ";

    private Shell() {}

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PropertiesConfiguration file = new Configurations().properties(arguments[0]);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            CompositeConfiguration configuration = new CompositeConfiguration();
            configuration.addConfiguration(file);
            BookieShell shell = new BookieShell(
                    LedgerIdFormatter.LONG_LEDGERID_FORMATTER, EntryFormatter.STRING_FORMATTER);
            shell.setConf(configuration);
            System.out.println(MARK + run(shell, json.readValue(line, String[].class)));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** A command that throws ends the original with a stack trace and status 1. */
    private static int run(BookieShell shell, String[] words) {
        try {
            return shell.run(words);
        } catch (Exception failure) {
            System.out.println(failure);
            return 1;
        }
    }
}
