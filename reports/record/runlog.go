package record

import (
	"fmt"
	"strings"
	"time"

	"fulcrum/internal/visible"
)

// Level is the severity of a line in run.log, by Python's names as Hydra writes them.
type Level string

const (
	LevelDebug   Level = "DEBUG"
	LevelInfo    Level = "INFO"
	LevelWarning Level = "WARNING"
	LevelError   Level = "ERROR"
)

// runLogLine is Hydra's default job log format: [%(asctime)s][%(name)s][%(levelname)s] - %(message)s.
// What a terminal would obey in the message, which may hold data, is shown.
func runLogLine(now time.Time, name string, level Level, message string) string {
	stamp := strings.Replace(now.Format("2006-01-02 15:04:05.000"), ".", ",", 1)
	return fmt.Sprintf("[%s][%s][%s] - %s\n", stamp, name, level, visible.Text(message))
}
