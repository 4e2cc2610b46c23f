package binlog

import (
	"encoding/binary"
	"fmt"
)

// The sizes of MariaDB's fractional types with mysql56_temporal_format=OFF, by digits.
var (
	hiresTimeBytes     = [7]uint8{3, 4, 4, 5, 5, 5, 6}
	hiresDatetimeBytes = [7]uint8{8, 6, 6, 7, 7, 7, 8}
)

var errTemporal = fmt.Errorf("%w: a part of a date or time is out of range", ErrCorrupt)

// bigUint reads up to 8 bytes, most significant first.
func bigUint(b []byte) uint64 {
	var u uint64
	for _, x := range b {
		u = u<<8 | uint64(x)
	}
	return u
}

// appendDate appends yyyy-mm-dd; any part may be zero.
func appendDate(dst []byte, year, month, day int) ([]byte, error) {
	if uint(year) > 9999 || uint(month) > 12 || uint(day) > 31 {
		return dst, errTemporal
	}
	return append(dst, byte('0'+year/1000), byte('0'+year/100%10), byte('0'+year/10%10), byte('0'+year%10), '-',
		byte('0'+month/10), byte('0'+month%10), '-', byte('0'+day/10), byte('0'+day%10)), nil
}

// appendClock appends hh:mm:ss; a TIME may have three digits of hours.
func appendClock(dst []byte, hour, minute, second int) ([]byte, error) {
	if uint(hour) > 999 || uint(minute) > 59 || uint(second) > 59 {
		return dst, errTemporal
	}
	if hour > 99 {
		dst = append(dst, byte('0'+hour/100))
		hour %= 100
	}
	return append(dst, byte('0'+hour/10), byte('0'+hour%10), ':', byte('0'+minute/10), byte('0'+minute%10), ':',
		byte('0'+second/10), byte('0'+second%10)), nil
}

// appendFraction appends the first fsp digits of so many microseconds behind a point, nothing when fsp is 0.
func appendFraction(dst []byte, micros uint32, fsp int) ([]byte, error) {
	if fsp == 0 {
		return dst, nil
	}
	if micros > 999999 {
		return dst, errTemporal
	}
	dst = append(dst, '.')
	return appendDigits(dst, micros/powers10[6-fsp], fsp), nil
}

// fractionMicros reads the fraction of the formats of MySQL 5.6: hundredths in a byte, ten-thousandths in two, millionths
// in three, most significant first.
func fractionMicros(b []byte) uint32 {
	u := uint32(bigUint(b))
	switch len(b) {
	case 1:
		return u * 10000
	case 2:
		return u * 100
	}
	return u
}

func appendDatetime(dst []byte, year, month, day, hour, minute, second int, micros uint32, fsp int) ([]byte, error) {
	if hour > 23 {
		return dst, errTemporal
	}
	dst, err := appendDate(dst, year, month, day)
	if err != nil {
		return dst, err
	}
	if dst, err = appendClock(append(dst, ' '), hour, minute, second); err != nil {
		return dst, err
	}
	return appendFraction(dst, micros, fsp)
}

// textDate appends DATE: three bytes, least significant first, of day (5 bits), month (4) and year.
func textDate(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	u := int(cell[0]) | int(cell[1])<<8 | int(cell[2])<<16
	return appendDate(dst, u>>9, u>>5&15, u&31)
}

// textDatetime2 appends the DATETIME of MySQL 5.6 and later: 40 bits, most significant first, of sign, year*13+month (17
// bits), day (5), hour (5), minute (6), second (6), then the fraction.
func textDatetime2(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	u := bigUint(cell[:5])
	if u>>39 == 0 {
		return dst, errTemporal
	}
	month := int(u >> 22 & 0x1ffff)
	return appendDatetime(dst, month/13, month%13, int(u>>17&31), int(u>>12&31), int(u>>6&63), int(u&63),
		fractionMicros(cell[5:]), c.fsp)
}

// textDatetimeOld appends the DATETIME before MySQL 5.6: the decimal number yyyymmddhhmmss, least significant first.
func textDatetimeOld(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	u := binary.LittleEndian.Uint64(cell)
	if u > 99991231235959 {
		return dst, errTemporal
	}
	date, clock := int(u/1000000), int(u%1000000)
	return appendDatetime(dst, date/10000, date/100%100, date%100, clock/10000, clock/100%100, clock%100, 0, 0)
}

// textDatetimeHires appends MariaDB's DATETIME(1..6) with mysql56_temporal_format=OFF: a number, most significant byte
// first, of year, month of 13, day of 32, hour of 24, minute of 60, second of 60 and the fraction.
func textDatetimeHires(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	u := bigUint(cell)
	unit := uint64(powers10[c.fsp])
	micros := uint32(u%unit) * powers10[6-c.fsp]
	u /= unit
	second := int(u % 60)
	u /= 60
	minute := int(u % 60)
	u /= 60
	hour := int(u % 24)
	u /= 24
	day := int(u % 32)
	u /= 32
	month := int(u % 13)
	u /= 13
	if u > 9999 {
		return dst, errTemporal
	}
	return appendDatetime(dst, int(u), month, day, hour, minute, second, micros, c.fsp)
}

// textTime2 appends the TIME of MySQL 5.6 and later: 24 bits and the fraction as one number, most significant byte first,
// from which half its range is taken to give the sign; the 24 bits are hour (10 bits), minute (6), second (6).
func textTime2(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	frac := uint(len(cell)-3) * 8
	v := int64(bigUint(cell)) - 1<<(23+frac)
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	micros := uint32(v & (1<<frac - 1))
	switch frac {
	case 8:
		micros *= 10000
	case 16:
		micros *= 100
	}
	v >>= frac
	dst, err := appendClock(dst, int(v>>12), int(v>>6&63), int(v&63))
	if err != nil {
		return dst, err
	}
	return appendFraction(dst, micros, c.fsp)
}

// textTimeOld appends the TIME before MySQL 5.6: the decimal number hhmmss, signed, least significant byte first.
func textTimeOld(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	v := littleInt(cell)
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	return appendClock(dst, int(v/10000), int(v/100%100), int(v%100))
}

// textTimeHires appends MariaDB's TIME(1..6) with mysql56_temporal_format=OFF: a number, most significant byte first,
// that counts the units of the fraction from 839 hours before zero.
func textTimeHires(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	const zero = 838*3600 + 59*60 + 59 + 1
	unit := int64(powers10[c.fsp])
	v := int64(bigUint(cell)) - zero*unit
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	micros := uint32(v%unit) * powers10[6-c.fsp]
	v /= unit
	if v > 999*3600 {
		return dst, errTemporal
	}
	dst, err := appendClock(dst, int(v/3600), int(v/60%60), int(v%60))
	if err != nil {
		return dst, err
	}
	return appendFraction(dst, micros, c.fsp)
}

// textTimestamp2 appends the TIMESTAMP of MySQL 5.6 and later: seconds of Unix time, most significant byte first, and the
// fraction. They are read unsigned: MariaDB 11.5 and later go to the year 2106.
func textTimestamp2(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	return appendTimestamp(dst, binary.BigEndian.Uint32(cell), fractionMicros(cell[4:]), c.fsp)
}

// textTimestampOld appends the TIMESTAMP before MySQL 5.6: seconds of Unix time, least significant byte first.
func textTimestampOld(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	return appendTimestamp(dst, binary.LittleEndian.Uint32(cell), 0, 0)
}

// textTimestampHires appends MariaDB's TIMESTAMP(1..6) with mysql56_temporal_format=OFF: seconds, most significant byte
// first, and the fraction in its own units.
func textTimestampHires(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	units := uint32(bigUint(cell[4:]))
	if units >= powers10[c.fsp] {
		return dst, errTemporal
	}
	return appendTimestamp(dst, binary.BigEndian.Uint32(cell), units*powers10[6-c.fsp], c.fsp)
}

// appendTimestamp appends Unix time in UTC; 0 is the zero date.
func appendTimestamp(dst []byte, seconds, micros uint32, fsp int) ([]byte, error) {
	if seconds == 0 && micros == 0 {
		dst = append(dst, "0000-00-00 00:00:00"...)
		return appendFraction(dst, 0, fsp)
	}
	// Days since 1970 to a date of the Gregorian calendar, counted in years that begin in March.
	days, clock := int(seconds/86400), int(seconds%86400)
	z := days + 719468 // since 0000-03-01
	era := z / 146097
	doe := z % 146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day := doy - (153*mp+2)/5 + 1
	month, year := mp+3, era*400+yoe
	if month > 12 {
		month -= 12
		year++
	}
	return appendDatetime(dst, year, month, day, clock/3600, clock/60%60, clock%60, micros, fsp)
}
