package bkbox.upstream;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory;
import org.apache.bookkeeper.sasl.SaslConstants;
import org.apache.bookkeeper.tls.BookieAuthZFactory;
import org.apache.bookkeeper.tls.TLSContextFactory;

/** Keys of bkbox's configuration for TLS and authentication, in place of those of a Java bookie. */
final class Security {
    private static final String USER = "user_";

    private final ServerConfiguration configuration;
    private final Path folder;
    private final Map<String, Object> found = new LinkedHashMap<>();

    private Security(ServerConfiguration configuration, Path folder) {
        this.configuration = configuration;
        this.folder = folder;
    }

    /** Files that they name are written into the folder. */
    static Map<String, Object> keys(ServerConfiguration configuration, Path folder) throws IOException {
        var made = new Security(configuration, folder);
        made.found.put("tls", "off");
        made.found.put("auth", List.of());
        String tls = configuration.getTLSProviderFactoryClass();
        if (tls != null && !tls.isEmpty()) {
            made.tls();
        }
        String auth = configuration.getBookieAuthProviderFactoryClass();
        if (auth != null && !auth.isEmpty()) {
            made.authentication(auth);
        }
        return made.found;
    }

    /** A Java bookie with TLS serves clients without it, too. */
    private void tls() throws IOException {
        found.put("tls", "offered");
        found.put("tls_client_certificates", configuration.getTLSClientAuthentication() ? "required" : "none");
        try {
            if (isPem(configuration.getTLSKeyStoreType())) {
                found.put("tls_certificate_file", configuration.getTLSCertificatePath());
                found.put("tls_key_file", written("bookie.key", Files.readString(Path.of(configuration.getTLSKeyStore()))));
            } else {
                fromKeyStore();
            }
            if (configuration.getTLSTrustStore() != null) {
                found.put("tls_ca_file", trusted());
            }
        } catch (GeneralSecurityException failure) {
            throw new IOException(failure);
        }
    }

    private void fromKeyStore() throws GeneralSecurityException, IOException {
        char[] password = password(configuration.getTLSKeyStorePasswordPath());
        KeyStore store = opened(configuration.getTLSKeyStoreType(), configuration.getTLSKeyStore(), password);
        for (String alias : Collections.list(store.aliases())) {
            if (store.isKeyEntry(alias)) {
                String key = pem("PRIVATE KEY", store.getKey(alias, password).getEncoded());
                found.put("tls_key_file", written("bookie.key", key));
                found.put("tls_certificate_file", written("bookie.crt", pem(store.getCertificateChain(alias))));
            }
        }
    }

    private String trusted() throws GeneralSecurityException, IOException {
        if (isPem(configuration.getTLSTrustStoreType())) {
            return configuration.getTLSTrustStore();
        }
        char[] password = password(configuration.getTLSTrustStorePasswordPath());
        KeyStore store = opened(configuration.getTLSTrustStoreType(), configuration.getTLSTrustStore(), password);
        StringBuilder text = new StringBuilder();
        for (String alias : Collections.list(store.aliases())) {
            text.append(pem(store.getCertificate(alias)));
        }
        return written("ca.crt", text.toString());
    }

    private void authentication(String factory) throws IOException {
        if (factory.equals(SASLBookieAuthProviderFactory.class.getName())) {
            found.put("auth", List.of("sasl"));
            found.put("auth_users_file", written("users", users()));
        } else if (factory.equals(BookieAuthZFactory.class.getName())) {
            found.put("auth", List.of("certificate"));
        } else {
            throw new OutOfScopeException("the authentication plug-in " + factory + " in the memory of the bookie");
        }
    }

    /** NAME:SECRET a line, from the section of Java's login configuration. */
    private String users() {
        String section = configuration.getString(
                SaslConstants.JAAS_BOOKIE_SECTION_NAME, SaslConstants.JAAS_DEFAULT_BOOKIE_SECTION_NAME);
        StringBuilder lines = new StringBuilder();
        Configuration login = Configuration.getConfiguration();
        login.refresh(); // another test may have named another file
        for (AppConfigurationEntry entry : login.getAppConfigurationEntry(section)) {
            entry.getOptions().forEach((name, secret) -> {
                if (name.startsWith(USER)) {
                    lines.append(name.substring(USER.length())).append(':').append(secret).append('\n');
                }
            });
        }
        if (lines.isEmpty()) {
            throw new OutOfScopeException("SASL without users and passwords");
        }
        return lines.toString();
    }

    private String written(String name, String text) throws IOException {
        Path file = folder.resolve(name);
        Files.writeString(file, text);
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
        return file.toString();
    }

    private static boolean isPem(String type) {
        return TLSContextFactory.KeyStoreType.PEM.toString().equals(type);
    }

    private static char[] password(String file) throws IOException {
        return file == null ? new char[0] : Files.readString(Path.of(file)).trim().toCharArray();
    }

    private static KeyStore opened(String type, String file, char[] password)
            throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance(type);
        try (var stream = Files.newInputStream(Path.of(file))) {
            store.load(stream, password);
        }
        return store;
    }

    private static String pem(Certificate... chain) throws GeneralSecurityException {
        StringBuilder text = new StringBuilder();
        for (Certificate each : chain) {
            text.append(pem("CERTIFICATE", each.getEncoded()));
        }
        return text.toString();
    }

    private static String pem(String what, byte[] encoded) {
        String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(encoded);
        return "-----BEGIN " + what + "-----\n" + body + "\n-----END " + what + "-----\n";
    }
}
