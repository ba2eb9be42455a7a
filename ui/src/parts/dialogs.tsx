/** Dialogs and menus, whose focus and keys react-aria minds. */
import type { ReactNode } from 'react'
import { Button, Dialog, Heading, Menu, MenuItem, MenuTrigger, Modal, ModalOverlay, Popover } from 'react-aria-components'
import { Icon } from './icons'

export function DialogBox({ title, open, onClose, children, alert = false, wide = false }: { title: string; open: boolean; onClose: () => void; children: ReactNode; alert?: boolean; wide?: boolean }) {
  return (
    <ModalOverlay className="overlay" isOpen={open} onOpenChange={(isOpen) => !isOpen && onClose()} isDismissable>
      <Modal className={wide ? 'dialog wide' : 'dialog'}>
        <Dialog role={alert ? 'alertdialog' : 'dialog'}>
          <Heading slot="title" level={2}>
            {title}
          </Heading>
          {children}
        </Dialog>
      </Modal>
    </ModalOverlay>
  )
}

export interface Choice {
  id: string
  text: ReactNode
  /** as it is found by typing */
  word: string
  disabled?: boolean
  /** the menu goes away, though others of its choices leave it open */
  closes?: boolean
}

interface MenuProps {
  label: ReactNode
  name: string
  choices: Choice[]
  onChoose: (id: string) => void
  /** of choices that are on or off */
  chosen?: ReadonlySet<string>
  single?: boolean
  className?: string
}

export function MenuButton({ label, name, choices, onChoose, chosen, single = false, className = 'button' }: MenuProps) {
  const disabled = choices.filter((choice) => choice.disabled).map((choice) => choice.id)
  return (
    <MenuTrigger>
      <Button className={className} aria-label={name}>
        {label}
      </Button>
      <Popover className="menu-box">
        <Menu
          className="menu"
          aria-label={name}
          disabledKeys={disabled}
          {...(chosen ? { selectionMode: single ? ('single' as const) : ('multiple' as const), selectedKeys: chosen } : {})}
          onAction={(key) => onChoose(String(key))}
        >
          {choices.map((choice) => (
            <MenuItem key={choice.id} id={choice.id} textValue={choice.word} {...(chosen && !single ? { shouldCloseOnSelect: choice.closes ?? false } : {})}>
              {chosen && <span className="tick">{chosen.has(choice.id) ? '✓' : ''}</span>}
              <span>{choice.text}</span>
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  )
}

export function CloseButton({ onClose, name = 'Close' }: { onClose: () => void; name?: string }) {
  return (
    <button type="button" className="button plain icon" aria-label={name} onClick={onClose}>
      <Icon name="close" />
    </button>
  )
}
